"""Raw bytes → Python values: which files are wanted, what each field is called, how it is decoded.

`sample.SampleFields` is the one that the engine calls; it is made of `matching` (the `extensions` grammar),
`naming` (`rename`, `missing`), `decoding` (which decoder), the decoders themselves (`basic`, `json_text`,
`images`, `pixels`, `user`) and `scale`.
"""
