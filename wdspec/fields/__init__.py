"""Raw bytes → Python values: which files are wanted, what each field is called, how it is decoded.

`sample.SampleFields` is the one that the engine calls; it is made of `matching` (the `extensions` grammar),
`naming` (`rename`, `missing`), `decoding` (which decoder), the decoders themselves and `scale`. The decoders: `basic`
is the table of what goes by the extension (`arrays`, `json_text`, `packed`, `tensors`, `pickles`), then there are
`images` (with `pixels`), `audio`, `video` and `user`; `unpacking` undoes ``.gz``. `handlers` is for Python users.
"""
