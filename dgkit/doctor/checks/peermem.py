"""nvidia-peermem, the older way of mapping GPU memory for a NIC."""
