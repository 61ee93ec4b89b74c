package record

import (
	"strconv"
	"sync"
	"testing"
	"time"
)

func TestMemoryKnowsSinceWhenAFileIsUnchanged(t *testing.T) {
	const s = time.Second
	first := File{Path: "/l/a.lock", Data: []byte("one"), Stat: Stat{Dev: 1, Ino: 2, Size: 3, ModTime: time.Unix(1000, 5), Mode: 0o600}}
	other := func(change func(*File)) File {
		f := first
		f.Data = append([]byte(nil), f.Data...)
		change(&f)
		return f
	}
	type look struct {
		f     File
		at    time.Duration // of the look
		since time.Duration
	}
	for name, looks := range map[string][]look{
		"the first look knows nothing": {{first, 0, 0}},
		"unchanged":                    {{first, 0, 0}, {first, s, 0}, {first, 3 * s, 0}, {other(func(*File) {}), 4 * s, 0}},
		"a gap of two seconds is none": {{first, 0, 0}, {first, 2 * s, 0}, {first, 4*s + 1, 4*s + 1}, {first, 5 * s, 4*s + 1}},
		"other bytes of the same time": {{first, 0, 0}, {other(func(f *File) { f.Data[0]++ }), s, s}, {first, 2 * s, 2 * s}},
		"another inode":                {{first, 0, 0}, {other(func(f *File) { f.Stat.Ino++ }), s, s}},
		"another time":                 {{first, 0, 0}, {other(func(f *File) { f.Stat.ModTime = f.Stat.ModTime.Add(1) }), s, s}},
		"another mode":                 {{first, 0, 0}, {other(func(f *File) { f.Stat.Mode = 0 }), s, s}},
		"it could not be read between": {{first, 0, 0}, {File{Path: first.Path}, s, s}, {first, 2 * s, 2 * s}},
		"another path":                 {{first, 0, 0}, {other(func(f *File) { f.Path = "/l/b.lock" }), s, s}, {first, 2 * s, 0}},
		"a look that comes late":       {{first, s, s}, {first, 0, s}, {first, 2 * s, s}},
	} {
		t.Run(name, func(t *testing.T) {
			var m Memory
			began := time.Now()
			for i, l := range looks {
				if got := m.Still(l.f, began.Add(l.at)).Sub(began); got != l.since {
					t.Errorf("look %d: unchanged since %v, want %v", i, got, l.since)
				}
			}
		})
	}
}

func TestMemoryForgetsWhatIsGone(t *testing.T) {
	var m Memory
	m.Forget("/never/seen")
	f := File{Path: "/l/a.lock", Data: []byte("one")}
	now := time.Now()
	m.Still(f, now)
	m.Forget(f.Path)
	if got := m.Still(f, now.Add(time.Second)); !got.Equal(now.Add(time.Second)) {
		t.Errorf("the same bytes after it was gone count as unchanged since %v", got)
	}
}

func TestMemoryServesManyAtOnce(t *testing.T) {
	var m Memory
	var all sync.WaitGroup
	now := time.Now()
	for range 4 {
		all.Go(func() {
			for i := range 200 {
				f := File{Path: "/l/" + strconv.Itoa(i%10), Data: []byte("x")}
				m.Still(f, now)
				if i%50 == 49 {
					m.Forget(f.Path)
				}
			}
		})
	}
	all.Wait()
	if got := m.Still(File{Path: "/l/0", Data: []byte("x")}, now.Add(time.Second)); !got.Equal(now) {
		t.Errorf("unchanged since %v", got)
	}
}
