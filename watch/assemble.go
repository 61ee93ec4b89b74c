package watch

import (
	"path/filepath"
	"slices"
	"time"
)

// assemble makes one snapshot of looks at all roots and of their entries, which are in order. A list that is shown as it
// is becomes the snapshot's.
func (w *Watcher) assemble(looks []*rootLook, lists [][]*Entry, now time.Time) *Snapshot {
	s := &Snapshot{Time: now, Observer: w.table().Self()}
	twice := twiceFollowed(looks)
	shown := make(map[shown]bool)
	var parts [][]*Entry
	for i, look := range looks {
		if isSecond(looks, i) {
			continue
		}
		s.Roots = append(s.Roots, look.root)
		list := lists[i]
		if len(twice) > 0 {
			list = once(look, list, twice, shown)
		}
		if len(list) > 0 {
			parts = append(parts, list)
		}
		for _, e := range look.errors {
			if !slices.ContainsFunc(s.Errors, func(old EntryError) bool { return old.Path == e.Path }) {
				s.Errors = append(s.Errors, e)
			}
		}
	}
	if len(parts) == 1 {
		s.Entries = slices.Clip(parts[0])
	} else {
		s.Entries = slices.Concat(parts...)
	}
	return s
}

// isSecond reports whether an earlier root leads to the same place as the i-th, or names the same missing one.
func isSecond(looks []*rootLook, i int) bool {
	l := looks[i]
	return slices.ContainsFunc(looks[:i], func(old *rootLook) bool {
		if l.place == (place{}) {
			return old.place == (place{}) && filepath.Clean(old.root.Path) == filepath.Clean(l.root.Path)
		}
		return old.place == l.place
	})
}

// twiceFollowed are the places to which more than one path leads: what is in them could be shown twice.
func twiceFollowed(looks []*rootLook) map[place]bool {
	if len(looks) == 1 && len(looks[0].layout.LeaseDirs) < 2 {
		return nil // below one root no directory is reached twice
	}
	seen, twice := make(map[place]bool), make(map[place]bool)
	for i, look := range looks {
		if isSecond(looks, i) {
			continue
		}
		for _, f := range look.dirs {
			if seen[f.place] {
				twice[f.place] = true
			}
			seen[f.place] = true
		}
	}
	return twice
}

// shown is an entry by the identity of its directory.
type shown struct {
	kind Kind
	dir  place
	name string
}

// once leaves out the entries of a look that were shown already, under another path.
func once(look *rootLook, list []*Entry, twice map[place]bool, before map[shown]bool) []*Entry {
	return slices.DeleteFunc(slices.Clone(list), func(e *Entry) bool {
		dir, name := filepath.Split(e.Path)
		at := look.dirs[filepath.Clean(dir)].place
		if !twice[at] {
			return false
		}
		k := shown{e.Kind, at, name}
		was := before[k]
		before[k] = true
		return was
	})
}
