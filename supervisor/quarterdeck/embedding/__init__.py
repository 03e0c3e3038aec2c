"""The product inside a program of one's own; `quarterdeck` names what is public."""
