"""From the text of a stack file to a site that is typed, checked and knows where each of its values comes from."""
