"""What tests of native tools share: sessions, boxes, cards, races."""
