package proc

// Deaths tells when processes end, zombies included. It knows processes by the pid that they have here, not by identity:
// whom a pid named when Watch was called is to be judged by a record. Watch and Close are called by one goroutine at a
// time.
//
// What it cannot promise: that every process is watched. Made-up machines, systems without pidfds and full tables of
// descriptors leave some, or all, to whoever asks again and again.
type Deaths struct {
	kernel *pidfds // nil: nothing can be watched
}

// Deaths returns what tells when processes of this machine end. It has a goroutine and descriptors until it is closed.
func (t *Table) Deaths() *Deaths { return &Deaths{kernel: openPidfds(t.src)} }

// Watch replaces the set of pids that are watched. ended are those that no process has any more; all other deaths come
// through Ended, those of zombies too. left are those that are not watched: without a descriptor for them, threads, and
// such as have ended already and were named in every call since, so that nobody who takes a zombie for alive asks for
// ever. A pid is in ended once, likewise.
func (d *Deaths) Watch(pids []int) (ended, left []int) {
	if d.kernel == nil {
		return nil, pids
	}
	return d.kernel.watch(pids)
}

// Ended tells of each watched process that ended, once. A pid that is no longer watched may still come, if its process
// ended before that. nil, which never tells, where nothing can be watched.
func (d *Deaths) Ended() <-chan []int {
	if d.kernel == nil {
		return nil
	}
	return d.kernel.ended
}

// Close gives all descriptors back; its goroutine has ended when it returns. Nobody needs to read Ended for that. After
// it nothing is watched. It may be called again.
func (d *Deaths) Close() {
	if d.kernel != nil {
		d.kernel.close()
	}
	d.kernel = nil
}
