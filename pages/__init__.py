"""The web app: the frame, the charts, the shared parts of pages, and one thin file per page."""
