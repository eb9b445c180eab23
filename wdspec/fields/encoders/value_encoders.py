"""Values that are no images → bytes: the counterparts of `basic`, by the extension each one writes."""

from __future__ import annotations

import io
import json
import operator
import pickle
import zipfile
from collections.abc import Callable, Mapping
from typing import Any

from wdspec.fields.decoders.optional_libraries import library
from wdspec.fields.decoders.tensors import read_torch
from wdspec.spec.language.vocabulary import LEFT_OUT_DECODERS, PICKLE_DECODERS

REFUSED_PICKLE = (
    "it would be stored as a pickle, which runs code when it is read; use json, npy or msgpack, or consent by "
    "`allow_pickle=True` (and by `allow: [pickle]` where it is read)"
)


def write_text(value: Any) -> bytes:
    """UTF-8. Raises TypeError for what is no text."""
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} is no text; give a str or bytes")
    return value.encode("utf-8")


def write_integer(value: Any) -> bytes:
    """Decimal digits of an integer: an int, an array or a tensor of one, or a text of one.

    Raises:
        TypeError, ValueError: it is no integer, and would not be read back as it was.
    """
    if isinstance(value, str):
        int(value)
        return value.encode("utf-8")
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:
        value = value.item()
    try:
        return b"%d" % operator.index(value)
    except TypeError:
        raise TypeError(f"{value!r:.60} is no integer; use json or txt for other values") from None


def write_json(value: Any) -> bytes:
    """JSON in UTF-8: a str becomes a JSON string, None becomes ``null``; arrays and tensors become lists.

    Raises:
        TypeError: JSON has no such value. (ValueError: it holds itself.)
    """
    try:
        return json.dumps(value, ensure_ascii=False, default=_listed).encode("utf-8")
    except UnicodeEncodeError:  # a lone surrogate, which JSON can spell and UTF-8 cannot
        return json.dumps(value, default=_listed).encode("ascii")


def _listed(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"JSON has no {type(value).__name__}")


def write_npy(value: Any) -> bytes:
    """One array, or what makes one: a tensor, a list, a number. Raises TypeError for an array of objects."""
    import numpy as np

    out = io.BytesIO()
    np.lib.format.write_array(out, _array(value), allow_pickle=False)
    return out.getvalue()


def write_npz(value: Any) -> bytes:
    """Arrays by name, compressed. Raises TypeError for what is no dict of arrays."""
    import numpy as np

    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"npz holds arrays by name; give a dict of str to array, not {type(value).__name__}")
    out = io.BytesIO()
    # Not np.savez: it takes the names as arguments, and so has no room for one called `file`.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, item in value.items():
            entry = zipfile.ZipInfo(f"{name}.npy")  # dated 1980, so the same bytes each time
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, _array(item), allow_pickle=False)
    return out.getvalue()


def _array(value: Any) -> Any:
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    array = np.asanyarray(value)
    if array.dtype.hasobject:
        raise TypeError(
            f"{type(value).__name__} makes an array of objects, which npy stores as a pickle; give it a dtype"
        )
    return array


def write_msgpack(value: Any) -> bytes:
    """MessagePack, with bytes apart from text. Raises TypeError for what it has not."""
    packb = library("msgpack", "writing mp").packb
    return packb(value, use_bin_type=True)  # type: ignore[no-any-return]  # of an untyped library


def write_cbor(value: Any) -> bytes:
    """CBOR. Raises an error of cbor2's for what it has not."""
    dumps = library("cbor2", "writing cbor").dumps
    return dumps(value)  # type: ignore[no-any-return]  # of an untyped library


def write_safetensors(value: Any) -> bytes:
    """Tensors (or arrays) by name. Raises TypeError for what is no dict of them."""
    import numpy as np

    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"safetensors holds tensors by name; give a dict, not {type(value).__name__}")
    if all(isinstance(item, np.ndarray) for item in value.values()):
        save = library("safetensors.numpy", "writing safetensors").save
        arrays = {name: np.ascontiguousarray(item) for name, item in value.items()}
        return save(arrays)  # type: ignore[no-any-return]  # of an untyped library
    torch = library("torch", "writing tensors")
    save = library("safetensors.torch", "writing safetensors").save
    tensors = {name: torch.as_tensor(item).contiguous() for name, item in value.items()}
    return save(tensors)  # type: ignore[no-any-return]  # of an untyped library


def write_torch(value: Any) -> bytes:
    """A `torch.save` file that can be read without unpickling: tensors and plain containers.

    Raises:
        TypeError: it holds anything else.
    """
    data = write_torch_objects(value)
    try:
        read_torch(data)
    except ValueError as error:
        raise TypeError(
            f"{REFUSED_PICKLE}; without that, pth holds tensors and plain containers only"
        ) from error
    return data


def write_torch_objects(value: Any) -> bytes:
    """A `torch.save` file, which may hold pickles."""
    out = io.BytesIO()
    library("torch", "writing pth").save(value, out)
    return out.getvalue()


def refuse_pickle(value: Any) -> bytes:
    """Raises TypeError: nobody said that pickles may be written."""
    raise TypeError(REFUSED_PICKLE)


def refuse_tenbin(value: Any) -> bytes:
    """Raises TypeError: there is no writer on purpose."""
    raise TypeError("tenbin is left out on purpose; use npy, or npz for several arrays")


def write_pickle(value: Any) -> bytes:
    """A pickle that every Python from 3.8 on can read."""
    return pickle.dumps(value, protocol=4)


BASIC_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    **dict.fromkeys(("txt", "text", "transcript", "html", "htm"), write_text),
    **dict.fromkeys(("cls", "cls2", "index", "inx", "id", "count", "class"), write_integer),
    **dict.fromkeys(("json", "jsn"), write_json),
    "npy": write_npy,
    "npz": write_npz,
    **dict.fromkeys(("mp", "msg", "msgpack"), write_msgpack),
    "cbor": write_cbor,
    "safetensors": write_safetensors,
    "pth": write_torch,
    **dict.fromkeys(sorted(PICKLE_DECODERS), refuse_pickle),
    **dict.fromkeys(sorted(LEFT_OUT_DECODERS), refuse_tenbin),
}
"""Encoders whose files run nothing when they are read, and those that refuse."""

PICKLE_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    **dict.fromkeys(sorted(PICKLE_DECODERS), write_pickle),
    "pth": write_torch_objects,
}
"""Encoders that come before the others where pickles are allowed; ``allow: [pickle]`` reads what they write."""
