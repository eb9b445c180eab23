"""What all tests share."""

from servers.fixtures import azure, gcs, nginx, proxy, s3, sshd

__all__ = ["azure", "gcs", "nginx", "proxy", "s3", "sshd"]
