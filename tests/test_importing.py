"""User code by name: one importer, whose errors name the function, the key, and what failed."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from wdspec.base.errors import FieldError, SpecError
from wdspec.base.user_code import check_arguments, file_of_module, import_function


@pytest.fixture(autouse=True)
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "kit_i": "NUMBER = 1\nclass Readers:\n    shout = staticmethod(bytes.upper)\n",
        "broken_i": "import nowhere_i\n",
        "odd_i": "raise AttributeError('a slip of its own')\n",
    }
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_attributes_of_attributes_are_found() -> None:
    assert import_function("kit_i:Readers.shout", "map")(b"a") == b"A"
    assert import_function("os.path:basename", "map")("a/b") == "b"


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("kit_i:nothing", "^`select: kit_i:nothing`: module `kit_i` has no `nothing`$"),
        ("kit_i:Readers.whisper", "module `kit_i` has no `Readers.whisper`"),
        ("kit_i:NUMBER", "^`select: kit_i:NUMBER` is a int, which cannot be called$"),
        (
            "nowhere_i:f",
            "^cannot import `nowhere_i` for `select: nowhere_i:f`: ModuleNotFoundError: .*PYTHONPATH",
        ),
        ("broken_i:f", "cannot import `broken_i` for .*: ModuleNotFoundError: No module named 'nowhere_i'"),
        ("odd_i:f", "cannot import `odd_i` for .*: AttributeError: a slip of its own"),
        ("kit_i:no name", "cannot import `kit_i` for .*write it as `package.module:function`"),
    ],
)
def test_the_failure_is_named_and_is_not_an_error_of_a_sample(name: str, says: str) -> None:
    with pytest.raises(SpecError, match=says) as caught:
        import_function(name, "select")
    assert not isinstance(caught.value, FieldError)
    assert caught.value.__cause__ is not None


def resize(sample: dict[str, object], *, size: int = 1, colour: str = "rgb") -> dict[str, object]:
    return sample


class Resize:
    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, sample: dict[str, object]) -> dict[str, object]:
        return sample


@pytest.mark.parametrize(
    ("function", "given", "named", "says"),
    [
        (
            resize,
            1,
            {"sise": 2},
            "`map: k:f` has no argument `sise`, which `args` gives it; did you mean `size`?",
        ),
        (resize, 1, {"zzz": 2}, "has no argument `zzz`, which `args` gives it; it takes `size`, `colour`"),
        (resize, 1, {"sample": 2}, "multiple values for argument 'sample'"),
        (resize, 0, {"size": 2}, "missing a required argument: 'sample'"),
        (Resize, 0, {"sise": 2}, "did you mean `size`?"),
        (Resize, 0, {}, "missing a required argument: 'size'"),
        (Resize(1), 1, {"x": 1}, "has no argument `x`, which `args` gives it; it takes none"),
    ],
)
def test_unknown_arguments_of_a_function_are_named_with_the_known_ones(function, given, named, says) -> None:
    with pytest.raises(SpecError) as caught:
        check_arguments(function, "map: k:f", given, named)
    assert says in str(caught.value)
    if inspect.isfunction(function) or inspect.isclass(function):
        line = inspect.getsourcelines(function)[1]
        assert f"{__file__}, line {line}, has `{function.__name__}(" in str(caught.value)


def anything(*given: object, **named: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "given"), [(resize, 1), (anything, 3), (dict, 1), (print, 1), (str.upper, 1)]
)
def test_functions_with_matching_or_unknown_signatures_are_accepted(function, given) -> None:
    check_arguments(function, "map: k:f", given)


def write_modules(folder: Path, **files: str) -> str:
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(folder)


def test_a_package_without_init_is_found_next_to_the_spec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = write_modules(tmp_path / "of_spec", plain_i__steps_py="def f(sample):\n    return 'spec'\n")
    assert import_function("plain_i.steps:f", "map", folder)({}) == "spec"
    assert file_of_module("plain_i.steps:f", folder) == str(tmp_path / "of_spec" / "plain_i")


def test_a_data_folder_next_to_the_spec_hides_no_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    folder = write_modules(tmp_path / "of_spec", **{"kit_i__0.tar": ""})
    assert import_function("kit_i:Readers.shout", "map", folder)(b"a") == b"A"
    assert file_of_module("kit_i:Readers", folder) == str(tmp_path / "kit_i.py")


def test_a_spec_error_in_a_user_module_shows_its_place(tmp_path: Path) -> None:
    folder = write_modules(
        tmp_path / "of_spec", raises_i_py="from wdspec.base.errors import SpecError\nraise SpecError('no')\n"
    )
    with pytest.raises(SpecError, match="cannot import `raises_i` for `map: raises_i:f`: SpecError: no"):
        import_function("raises_i:f", "map", folder)


def test_an_already_imported_module_of_the_same_name_is_rejected(tmp_path: Path) -> None:
    import_function("kit_i:Readers.shout", "map")
    folder = write_modules(tmp_path / "of_spec", kit_i_py="def f():\n    pass\n")
    with pytest.raises(
        SpecError, match=r"^`map: kit_i:f`: next to the spec is .*of_spec/kit_i\.py, but this process"
    ):
        import_function("kit_i:f", "map", folder)
