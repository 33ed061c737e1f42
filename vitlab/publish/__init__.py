"""For maintainers: notebooks from their sources, reference results, exercises, Colab copies, the site."""
