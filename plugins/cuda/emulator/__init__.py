"""A device without a device: PTX compiled for this processor, and watched while it runs."""
