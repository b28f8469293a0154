"""Model families, one file each: the order of blocks in a layer, tensor names, and what the files leave unsaid."""
