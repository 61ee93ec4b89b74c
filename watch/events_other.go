//go:build !linux

package watch

// What the kernel's way to tell of changes is called, and what bounds it.
const (
	eventMode     = "events"
	watchLimit    = "the system's limit is reached"
	instanceLimit = "the limit of open files is reached"
)
