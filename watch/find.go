package watch

import (
	"path/filepath"
	"slices"
	"strings"

	"holdfast/fslock/verdict"
)

// Stuck returns the leases and locks that do not clear by themselves, the most urgent first. Tokens and temps are
// not among them: what they block is.
func (s *Snapshot) Stuck() []*Entry {
	stuck := s.where(func(e *Entry) bool { return e.Verdict.Stuck && (e.Kind == Lease || e.Kind == Lock) })
	SortByUrgency(stuck)
	return stuck
}

// Find returns the entries that a query of a person names, in the snapshot's order; none when nothing matches. The
// first of these that matches anything decides:
//
//  1. the path (a relative one is taken from the working directory),
//  2. the id of a lease,
//  3. the name that was decoded from the storage,
//  4. the last elements of the path, such as 8eb3/writer.lease,
//  5. the end of the path from within an element on, such as b3/writer.lease, if it is that of one entry only.
//
// All but the last can name several entries; whoever means to change one must refuse then.
func (s *Snapshot) Find(query string) []*Entry {
	if query == "" {
		return nil
	}
	path := query
	if abs, err := filepath.Abs(query); err == nil {
		path = abs
	}
	elements := string(filepath.Separator) + filepath.Clean(query)
	for _, match := range [...]func(*Entry) bool{
		func(e *Entry) bool { return e.Path == query || e.Path == path },
		func(e *Entry) bool { return e.Kind == Lease && e.ID == query },
		func(e *Entry) bool { return e.Name == query },
		func(e *Entry) bool { return strings.HasSuffix(e.Path, elements) },
	} {
		if found := s.where(match); len(found) > 0 {
			return found
		}
	}
	// Less than the whole last element is no name: "live" is not meant for "alive".
	found := s.where(func(e *Entry) bool { return strings.HasSuffix(e.Path, elements[1:]) })
	if len(found) > 1 || !strings.ContainsRune(elements[1:], filepath.Separator) {
		return nil
	}
	return found
}

// Next returns the next safe commands of v, a verdict on the entry e of the snapshot, so that they work anywhere: where
// the id of a lease would not be looked for by itself, or is in several places, they name its root.
func (s *Snapshot) Next(e *Entry, v *verdict.Verdict) []string {
	next := slices.Clone(v.Next)
	root := s.rootOf(e)
	if root == "" {
		return next
	}
	for i, command := range next {
		for _, verb := range [...]string{"claim ", "epoch ", "why "} {
			if strings.HasPrefix(command, "holdfast "+verb) {
				next[i] = verdict.With(command, "--root "+verdict.Quote(root))
			}
		}
	}
	return next
}

// rootOf is where a command on a lease has to look for it; "" where it looks by itself, and for all but leases.
func (s *Snapshot) rootOf(e *Entry) string {
	if e.Kind != Lease {
		return ""
	}
	for _, other := range s.Entries {
		if other.Kind == Lease && other.ID == e.ID && other.Path != e.Path {
			return filepath.Dir(e.Path)
		}
	}
	i := slices.IndexFunc(s.Roots, func(r Root) bool { return r.Path == e.Root })
	switch {
	case i >= 0 && Discovered(s.Roots[i]):
		return ""
	case i < 0 || s.Roots[i].Kind == "file" || s.Roots[i].Kind == "missing":
		return filepath.Dir(e.Path)
	default:
		return e.Root
	}
}

func (s *Snapshot) where(match func(*Entry) bool) []*Entry {
	var found []*Entry
	for i := range s.Entries {
		if match(s.Entries[i]) {
			found = append(found, s.Entries[i])
		}
	}
	return found
}
