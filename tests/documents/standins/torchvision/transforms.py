"""The transforms that the documents use, on Pillow images and tensors."""

import random

import numpy as np
import torch
from PIL import Image


class Compose:
    def __init__(self, transforms):
        self.transforms = transforms

    def __call__(self, value):
        for transform in self.transforms:
            value = transform(value)
        return value


class RandomResizedCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        side = max(1, int(min(image.size) * random.uniform(0.3, 1)))
        left, top = (random.randrange(full - side + 1) for full in image.size)
        return image.resize((self.size, self.size), Image.BILINEAR, (left, top, left + side, top + side))


class RandomHorizontalFlip:
    def __call__(self, image):
        return image.transpose(Image.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


class Resize:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        factor = self.size / min(image.size)
        return image.resize(tuple(max(self.size, round(side * factor)) for side in image.size))


class CenterCrop:
    def __init__(self, size):
        self.size = size

    def __call__(self, image):
        left, top = ((side - self.size) // 2 for side in image.size)
        return image.crop((left, top, left + self.size, top + self.size))


class ToTensor:
    """An image, or an array HWC, as a tensor CHW; uint8 becomes float32 in 0..1."""

    def __call__(self, image):
        array = np.array(image)
        tensor = torch.from_numpy(array if array.ndim == 2 else array.transpose(2, 0, 1).copy())
        return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor


class Normalize:
    def __init__(self, mean, std):
        self.mean, self.std = (torch.tensor(values).view(-1, 1, 1) for values in (mean, std))

    def __call__(self, tensor):
        return (tensor - self.mean) / self.std
