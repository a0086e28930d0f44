# Headers, libraries and the CMake package; filled in with the embedding example.
