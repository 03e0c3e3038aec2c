"""What tests of `quarterdeck check` have in common."""
