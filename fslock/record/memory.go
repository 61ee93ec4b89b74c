package record

import (
	"hash/maphash"
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
	once  sync.Once // for the seed
	seed  maphash.Seed
	mu    sync.Mutex
	seen  map[string]memory
	prune int // the size at which the map is looked through next
}

// memory knows a file by a sum that nobody can foresee: the bytes of ten thousand files would double what a look keeps.
type memory struct {
	sum   uint64
	since time.Time
	last  time.Duration // after since
}

// Still takes note of a look at now and returns since when f has been watched unchanged, in bytes, inode and
// file time, with no gap of over 2 s between looks; now itself when this is the first such look.
func (m *Memory) Still(f File, now time.Time) time.Time {
	var h maphash.Hash
	m.once.Do(func() { m.seed = maphash.MakeSeed() })
	h.SetSeed(m.seed)
	maphash.WriteComparable(&h, f.Stat)
	_, _ = h.Write(f.Data)
	sum := h.Sum64()
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.seen[f.Path]
	if known && now.Sub(old.since)-old.last <= maxGap && old.sum == sum {
		old.last = now.Sub(old.since)
		m.seen[f.Path] = old
		return old.since
	}
	if m.seen == nil {
		m.seen = make(map[string]memory)
	}
	m.seen[f.Path] = memory{sum: sum, since: now}
	if len(m.seen) > m.prune {
		// Names that never come again, as those of temps, would fill it for ever.
		maps.DeleteFunc(m.seen, func(_ string, old memory) bool { return now.Sub(old.since)-old.last > maxGap })
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
