"""The IOMMU and the kernel's command line."""
