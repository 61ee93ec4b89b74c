package proc

// Limit bounds the descriptors of a Deaths, as if the system gave no more.
func Limit(d *Deaths, n int) { d.kernel.limit = n }
