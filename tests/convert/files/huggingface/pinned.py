import datasets

web = datasets.load_dataset("HuggingFaceFW/fineweb", name="sample-10BT", split="train", streaming=True)
pets = datasets.load_dataset("timm/oxford-iiit-pet", split="train[:90%]", revision="v1.0")
mixed = datasets.interleave_datasets([web, pets], probabilities=[0.9, 0.1])
