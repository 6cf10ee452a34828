"""What tests of inspections need."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # before transformers is imported: nothing is ever downloaded
