package record

import (
	"bytes"
	"maps"
	"sync"
	"time"
)

// maxGap is the longest time between two looks over which a file still counts as watched: a beat could
// hide in a longer one, or the machine could have slept.
const maxGap = 2 * time.Second

// Memory remembers what was last seen of each file and since when it has not changed. The zero value is ready;
// its methods may be called at the same time. It drops what was not looked at for so long that it would start anew.
type Memory struct {
	mu    sync.Mutex
	seen  map[string]*memory
	prune int // the size at which the map is looked through next
}

type memory struct {
	data        []byte
	stat        Stat
	since, last time.Time
}

// Still takes note of a look at now and returns since when f has been watched unchanged, in bytes, inode and
// file time, with no gap of over 2 s between looks; now itself when this is the first such look.
func (m *Memory) Still(f File, now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	old := m.seen[f.Path]
	if old != nil && now.Sub(old.last) <= maxGap && old.stat == f.Stat && bytes.Equal(old.data, f.Data) {
		old.last = now
		return old.since
	}
	if m.seen == nil {
		m.seen = make(map[string]*memory)
	}
	m.seen[f.Path] = &memory{data: f.Data, stat: f.Stat, since: now, last: now}
	if len(m.seen) > m.prune {
		// Names that never come again, as those of temps, would fill it for ever.
		maps.DeleteFunc(m.seen, func(_ string, old *memory) bool { return now.Sub(old.last) > maxGap })
		m.prune = 2*len(m.seen) + 64
	}
	return now
}

// Forget drops what is known of a path that is no longer there.
func (m *Memory) Forget(path string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.seen, path)
}
