"""What to write instead of what is wrong: names of other tools in, sentences out."""
