"""What state there is, where it lies, and its backup by peers."""
