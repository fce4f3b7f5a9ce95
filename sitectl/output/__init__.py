"""What commands print, draw and keep."""
