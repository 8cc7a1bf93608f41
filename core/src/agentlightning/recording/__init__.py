"""What happens inside a running agent: context, seam, recorder, sink, emitters."""
