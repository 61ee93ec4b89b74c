package watch

// What the kernel's way to tell of changes is called, and what bounds it.
const (
	eventMode     = "inotify"
	watchLimit    = "fs.inotify.max_user_watches is reached"
	instanceLimit = "fs.inotify.max_user_instances (or open files) is reached"
)
