"""Rules about what is in one source hold for the sources of companions as for those of the mix."""

import pytest
import tokenizers_made
import yaml

from wdspec.spec.load import check

MISTAKES = {
    "E385": {"make": {"ids": {"tokenize": "txt", "file": "tokenizer.json", "eos": "<eos>"}}},
    "W440": {"make": {"ids": {"tokenize": "txt", "file": "absent.json"}}},
    "E370": {"make": {"ids": {"take": "ids"}}},
    "E308": {"extensions": "jpg", "rename": {"image": "png"}},
    "E321": {"extensions": "cls txt", "rename": {"cls": "txt"}},
    "E315": {"extensions": "jpg txt", "decode": {"png": "rgb8"}},
    "W377": {"scale": 224},
    "W340": {"extensions": "txt", "decode": "rgb8"},
    "E365": {"fetch": {"image": "json.url"}},
}


@pytest.mark.parametrize("code", MISTAKES)
@pytest.mark.parametrize("is_named", [False, True])
def test_companions_get_the_problem_that_a_source_would_get(tmp_path, monkeypatch, code, is_named):
    monkeypatch.chdir(tmp_path)
    tokenizers_made.trained("bpe").save("tokenizer.json")
    wrong = {"shards": "b.tar", **MISTAKES[code]}
    own = {"source": "b"} if is_named else wrong
    spec = {"dataset": [{"name": "a", "shards": "a.tar", "companions": {"x": own}}]}
    spec |= {"companions": {"b": wrong}} if is_named else {}

    def problem(spec):
        (tmp_path / "s.yaml").write_text(yaml.safe_dump(spec))
        (found,) = [each for each in check("s.yaml")[1] if each.code == code]
        return found.message.replace("`a/x`", "`b`"), found.line > 1

    assert problem(spec) == problem({"dataset": [{"name": "b", **wrong}]})
