"""The contract both sides of the link share: values in, values out."""
