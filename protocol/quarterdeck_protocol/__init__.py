"""The contract that both sides of the link share: values in, values out.  Pure, but for `io` and `tls`."""
