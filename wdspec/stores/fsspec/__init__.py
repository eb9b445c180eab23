"""All stores that fsspec reads: S3, GCS, Azure, Hugging Face, SFTP and more. Read `fsspec_store.py` first."""
