"""ACS on the bridges between a GPU and a NIC."""
