"""The site for readers: a page for every notebook and document, offline, every link checked (all sections)."""
