"""The report in the forms that programs read: JSON, JUnit XML, SARIF.  Pure.  What people read is the command's."""
