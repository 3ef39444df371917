"""`commbench links`: the speeds of links, and the bandwidths that were published for them."""
