"""What several rooms need and none owns.  Imports no other room."""
