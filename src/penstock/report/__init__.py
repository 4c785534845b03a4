"""What a run did, in the words every executor shares."""
