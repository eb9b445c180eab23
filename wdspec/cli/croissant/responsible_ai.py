"""What a data set's people say of how it came to be, in the words of Croissant's RAI vocabulary."""

from __future__ import annotations

from typing import Any

import yaml

from wdspec.base.errors import UsageError, did_you_mean

ONE = (
    "dataCollection",
    "dataCollectionMissingData",
    "dataCollectionRawData",
    "dataImputationProtocol",
    "dataManipulationProtocol",
    "annotationsPerItem",
    "dataSocialImpact",
    "dataReleaseMaintenancePlan",
)
MANY = (
    "dataCollectionType",
    "dataCollectionTimeframe",
    "dataPreprocessingProtocol",
    "dataAnnotationProtocol",
    "dataAnnotationPlatform",
    "dataAnnotationAnalysis",
    "annotatorDemographics",
    "machineAnnotationTools",
    "dataBiases",
    "dataUseCases",
    "dataLimitations",
    "personalSensitiveInformation",
)
REQUIRED = ("dataCollection", "dataBiases", "dataLimitations", "personalSensitiveInformation", "dataUseCases")
"""What reviewers of data sets ask for, and no spec can say."""


def read_statements(path: str) -> dict[str, Any]:
    """The statements of a YAML or JSON file, by the names of the vocabulary.

    Raises:
        UsageError: the file is no map of them, or has others.
        OSError: it cannot be read.
    """
    with open(path, encoding="utf-8") as file:
        try:
            said = yaml.safe_load(file)
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise UsageError(f"this is no YAML: {error}", file=path) from None
    if not isinstance(said, dict):
        raise UsageError("this is no map of statements, such as `dataBiases: [...]`", file=path)
    made: dict[str, Any] = {}
    for key, value in said.items():
        name = str(key).removeprefix("rai:")
        if name not in (*ONE, *MANY):
            hint = did_you_mean(name, (*ONE, *MANY)) or f"there are {', '.join((*ONE, *MANY))}"
            raise UsageError(f"`{key}` is no statement of Croissant's RAI vocabulary; {hint}", file=path)
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(each, str) for each in texts):
            raise UsageError(f"`{key}` takes a text, or a list of texts", file=path)
        if name in ONE and len(texts) > 1:
            raise UsageError(f"`{key}` takes one text, not {len(texts)}", file=path)
        made[name] = texts[0] if name in ONE else texts
    return made
