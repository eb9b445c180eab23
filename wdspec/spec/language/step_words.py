"""Names that the options of steps have in other tools, and what to write here. It is read only for unknown options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wdspec.base.errors import did_you_mean

_PADDING = "rows are padded in batches: `collate: {ids: {pad: {mask: attention_mask}}}`"
_TOKENIZERS = (
    "tokenizer tokenizer_name tokenizer_path tokenizer_file tokenizer_model model model_name vocab path folder "
    "pretrained name"
)
_FILE = (
    "write `file: {}`, the path of a `tokenizer.json` or of a folder of transformers",
    "tokenizer.json",
)
_LENGTHS = (
    "max_length max_len max_tokens max_seq_length max_seq_len seq_length seq_len model_max_length cutoff_len"
)
_COMMON: Mapping[str, Any] = {
    "padding pad pad_to_max_length pad_token pad_token_id pad_to_multiple_of attention_mask return_attention_mask": (
        _PADDING
    ),
    "return_tensors": "remove it: ids are arrays in samples, and tensors in batches",
    "seed random_state generator": "remove it: what is drawn depends on `seed` of the spec",
    "batched num_proc batch_size": "remove it: the number of workers says how many processes tokenize",
}
_WORDS: Mapping[str, Mapping[str, Any]] = {
    "tokenize": {
        _LENGTHS: ("write `truncate: {}`, the most tokens of a document", 512),
        "truncation truncate_to": ("write `truncate: {}`, the most tokens of a document", 512),
        _TOKENIZERS: _FILE,
        "eos_token eos_token_id eos_id add_eos add_eos_token append_eos end append_eod": (
            'write `eos: "{}"`, the text of the token that ends each document',
            "<|endoftext|>",
        ),
        "bos bos_token add_bos add_bos_token prepend_bos": (
            "remove it: the tokenizer adds such tokens, unless `add_special_tokens: false` is set"
        ),
        "text_pair second": ("write `pair: {}`, the field with the second text", "answer"),
        "token_type_ids return_token_type_ids": ("write `type_ids: {}`", "token_type_ids"),
        "stride overflow return_overflowing_tokens chunk_size block_size": (
            "long documents become several rows by `batch: {window: 1000, overlong: split, pack: {fields: ids, length: "
            "2048}}`"
        ),
        "separator sep delimiter": ("write `join: {}`, next to a list of texts", "' '"),
        "label": ("write `labels: {}`", "labels"),
    },
    "chat": {
        f"{_LENGTHS} truncate truncation": (
            "a conversation is never cut; leave out longer ones by `where: input_ids.length <= {}`",
            4096,
        ),
        _TOKENIZERS: _FILE,
        "chat_template": ("write `template: {}`, a file with a template", "chat.jinja"),
        "train_on_inputs train_on_prompt mask_inputs mask_prompt assistant_only_loss completion_only_loss "
        "train_on_responses_only roles_to_train train_on": "write `loss: assistant`, `loss: last` or `loss: all`",
        "role_map role_mapping role_tag assistant_tag user_tag": "write `roles: {bot: assistant}`",
        "add_generation_prompt": "remove it: conversations for training end with an answer",
        "system system_prompt default_system default_system_message": "write it as the first message of the data",
        "image": ("write `images: {}`, the field with the images", "jpg"),
        "num_image_tokens image_tokens image_seq_length": ("write `image_length: {}`", 256),
        "label": ("write `labels: {}`", "labels"),
    },
    "label": {
        "classes class class_names labels class_list label_names categories vocabulary": (
            "write `names: [cat, dog]`, or `file: classes.txt`"
        ),
        "class_file classes_file names_file label_file labels_file path": ("write `file: {}`", "classes.txt"),
        "mapping map class_to_idx label2id label_map index": "write `names: {cat: 0, dog: 1}`",
        "ignore_index default missing other unk fallback": ("write `unknown: {}`", -100),
        "synonyms alias rename merge": "write `aliases: {kitty: cat}`",
    },
    "choose": {"probabilities probs prob p weight ratio ratios": "write `weights: [0.5, 0.3, 0.2]`"},
    "crop": {
        "image_size img_size crop_size resize height width": ("write `size: {}`", 224),
        "flip horizontal_flip random_flip flip_prob p_flip fliplr": (
            "write `hflip: {}`, the probability",
            0.5,
        ),
        "area area_range scale_range": "write `scale: [0.08, 1]`",
        "aspect_ratio aspect ratio_range": "write `ratio: [0.75, 1.3333]`",
        "bbox bboxes box": ("write `boxes: {{boxes: {}}}`", "json.boxes"),
        "keypoints keypoint kps landmarks point": ("write `points: {{points: {}}}`", "json.keypoints"),
        "mask segmentation seg": ("write `masks: {{mask: {}}}`", "seg"),
        "format bbox_format boxes_format": ("write `box_format: {}`: `xyxy`, `xywh` or `cxcywh`", "xyxy"),
        "normalized normalize_boxes absolute": "write `relative: true` if boxes are fractions of the image",
        "label labels class_labels": "write `kept: kept`, and take `labels[kept]` in a function of `map`",
        "flip_pairs flip_map keypoint_flip": "write `flip_points: [[1, 2]]`, pairs of points counted from 0",
        "vflip rotate rotation normalize mean std brightness contrast saturation hue color_jitter": (
            "colors change in `decode: torchrgb8+brightness=0.4`; other transforms of an image with its boxes are "
            "functions in `map`"
        ),
    },
    "mask_tokens": {
        "mlm_probability mask_probability masking_probability mask_prob p prob ratio rate mask_ratio mask_rate": (
            "write `probability: {}`",
            0.15,
        ),
        _TOKENIZERS: _FILE,
        "label": ("write `labels: {}`", "labels"),
    },
    "segment": {
        "start begin begin_time start_time from_time onset t0": (
            "write `offset: {}`, the field with seconds",
            "json.start",
        ),
        "length seconds dur": ("write `duration: {}`, the field with seconds", "json.duration"),
        "end stop end_time until t1": (
            "write `duration: json.duration`, its seconds; compute it in the data if they have the end"
        ),
        "rate sample_rate sr resample target_rate target_sr": (
            "write `decode: audio+rate={}`",
            16000,
        ),
        "sampling_rate source_sampling_rate orig_rate": ("write `source_rate: {}`", "json.sampling_rate"),
        "mono channel channels speed gain clip": "write `decode: audio+mono`: options of decoders of audio are there",
        "decoder as": ("write `decode: {}`", "audio+rate=16000"),
    },
    "add_noise": {
        "snr_db snr_range snr_dbs ratio level": ("write `snr: {}`", "5..20"),
        "min_snr max_snr min_snr_db max_snr_db snr_low snr_high": "write `snr: 5..20`",
        "other background with": ("write `noise: {}`, the field with the noise", "noise.wav"),
        "prob p probability chance": "write it in `companions: {noise: {source: musan, chance: 0.5}}`",
        "mix_offset offset": "noise starts at a random place",
    },
    "convolve": {
        "rir ir room impulse_response kernel with": (
            "write `impulse: {}`, the field with the response",
            "impulse.wav",
        ),
        "normalize normalize_output": "remove it: the result has the level of the recording",
        "prob p probability chance": "write it in `companions: {impulse: {source: rir, chance: 0.3}}`",
    },
}


def hint_of_option(step: str, option: str, given: object, known: tuple[str, ...]) -> str:
    """Return what to write for an option that a step does not have.

    Args:
        step: the name of the step.
        option: the unknown option.
        given: its value, which is in the hint if it is of the right type.
        known: the options of the step.
    """
    folded = option.strip().lower().replace("-", "_")
    for words, advice in (*_WORDS.get(step, {}).items(), *_COMMON.items()):
        if folded in words.split():
            if isinstance(advice, str):
                return advice
            text, example = advice
            return str(text).format(given if type(given) is type(example) and str(given).strip() else example)
    return did_you_mean(option, known) or f"the keys here are {', '.join(known)}"
