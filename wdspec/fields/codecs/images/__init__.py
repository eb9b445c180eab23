"""Pictures: bytes → array, tensor or Pillow image, rescaled on the way if asked; and back.

`image_decoder` is where to begin: it takes JPEGs by `jpeg` (simplejpeg) where that is installed, and all else by Pillow
(`image_files`), whose modes and depths `pixels` brings to what was asked for. `image_encoder` writes.
"""
