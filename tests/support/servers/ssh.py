"""A real sshd on loopback, with its own host and user keys; it runs as the user who runs the tests."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from servers.processes import started, stop

_CONFIG = """\
ListenAddress 127.0.0.1
HostKey {home}/host_key
AuthorizedKeysFile {home}/user_key.pub
PidFile {home}/sshd.pid
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
Subsystem sftp internal-sftp
MaxStartups 100
"""
_CLIENT = """\
Host proxyhost
  HostName 127.0.0.1
  Port {port}
  User {user}
  IdentityFile {home}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {home}/known_hosts
  BatchMode yes
  LogLevel ERROR
"""


@dataclass
class Sshd:
    """A running server, which `ssh -F {config} proxyhost` reaches."""

    home: Path
    port: int
    process: subprocess.Popen[bytes]

    @property
    def command(self) -> str:
        """What reaches the host `proxyhost`, as the beginning of a shell command."""
        return f"ssh -F {self.home}/config proxyhost"

    @property
    def key(self) -> Path:
        return self.home / "user_key"

    @property
    def user(self) -> str:
        return getpass.getuser()

    def stop(self) -> None:
        stop(self.process)


def sshd_program() -> str | None:
    """The path of sshd, if it and ssh are installed."""
    found = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    return found if shutil.which("ssh") and shutil.which("ssh-keygen") else None


def start_sshd(home: Path) -> Sshd:
    """Starts a server that this user may log in to with `home`/user_key."""
    program = sshd_program()
    assert program, "sshd is not installed"
    for name in ("host_key", "user_key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / name)], check=True)
    (home / "sshd_config").write_text(_CONFIG.format(home=home))
    if os.getuid() == 0:
        os.makedirs("/run/sshd", exist_ok=True)  # sshd wants it, as root only
    process, port = started(
        lambda port: [program, "-D", "-e", "-f", str(home / "sshd_config"), "-p", str(port)],
        home / "sshd.log",
    )
    kind, key = (home / "host_key.pub").read_text().split()[:2]
    (home / "known_hosts").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    (home / "config").write_text(_CLIENT.format(home=home, port=port, user=getpass.getuser()))
    return Sshd(home, port, process)
