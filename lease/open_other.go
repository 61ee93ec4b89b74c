//go:build !unix

package lease

const openFlags = 0
