package watch

import (
	"cmp"
	"iter"
	"slices"
	"sync"
)

// tree is what is known of the entries of one root. Its lists are never changed in place: snapshots share them.
type tree struct {
	sorted []*Entry
	index  map[key]*Entry
	beside map[string][]*Entry // tokens and temps, by their lock
}

func newTree() *tree {
	return &tree{index: make(map[key]*Entry), beside: make(map[string][]*Entry)}
}

func inOrder(a, b *Entry) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Path, b.Path))
}

// change is what became of one entry; nil: it is not there.
type change struct{ was, is *Entry }

func (c change) entry() *Entry {
	if c.is != nil {
		return c.is
	}
	return c.was
}

// changes compares what is known with a list of what is so, in order.
func (t *tree) changes(sorted []*Entry) []change {
	var all []change
	differing(t.sorted, sorted, func(was, is *Entry) { all = append(all, change{was, is}) })
	return all
}

// take takes in the changes; those of one entry must not be there twice.
func (t *tree) take(changes []change) {
	if len(changes) == 0 {
		return
	}
	for _, c := range changes {
		k := keyOf(c.entry())
		if c.is != nil {
			t.index[k] = c.is
		} else {
			delete(t.index, k)
		}
		if lock := c.entry().LockOf; lock != "" {
			t.put(lock, c)
		}
	}
	slices.SortFunc(changes, func(a, b change) int { return inOrder(a.entry(), b.entry()) })
	sorted := make([]*Entry, 0, len(t.sorted)+len(changes))
	rest := t.sorted
	for _, c := range changes {
		at, found := slices.BinarySearchFunc(rest, c.entry(), inOrder)
		sorted = append(sorted, rest[:at]...)
		if rest = rest[at:]; found {
			rest = rest[1:]
		}
		if c.is != nil {
			sorted = append(sorted, c.is)
		}
	}
	t.sorted = append(sorted, rest...)
}

// put takes in a change of a token or temp of a lock.
func (t *tree) put(lock string, c change) {
	k := keyOf(c.entry())
	var list []*Entry
	for _, e := range t.beside[lock] {
		if keyOf(e) != k {
			list = append(list, e)
		}
	}
	if c.is != nil {
		list = append(list, c.is)
	}
	if len(list) == 0 {
		delete(t.beside, lock)
		return
	}
	t.beside[lock] = list
}

// temps are the temps of the lock that are known.
func (t *tree) temps(lock string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, e := range t.beside[lock] {
			if e.Kind == Temp && !yield(e.Path) {
				return
			}
		}
	}
}

// differing tells every entry of which two lists have not the same *Entry: those of newer in its order, then those that
// only older has. Of lists in the order of snapshots that share most entries it costs little more than a comparison of
// pointers.
func differing(older, newer []*Entry, tell func(was, is *Entry)) {
	var all []change
	var lost []*Entry
	ranks := sync.OnceValue(func() map[string]int { return ranksOf(newer) })
	i, j := 0, 0
	for i < len(older) && j < len(newer) {
		a, b := older[i], newer[j]
		if a == b { // before anything of them is read: of 10,000 entries, that alone is most of the time
			i, j = i+1, j+1
			continue
		}
		switch c := order(ranks, a, b); {
		case c == 0:
			all = append(all, change{a, b})
			i, j = i+1, j+1
		case c < 0:
			lost = append(lost, a)
			i++
		default:
			all = append(all, change{nil, b})
			j++
		}
	}
	older, newer = older[i:], newer[j:]
	lost = append(lost, older...)
	for _, b := range newer {
		all = append(all, change{nil, b})
	}
	if len(lost) > 0 {
		lost = rejoin(lost, all)
	}
	for _, c := range all {
		if c.was != c.is {
			tell(c.was, c.is)
		}
	}
	for _, e := range lost {
		tell(e, nil)
	}
}

// rejoin finds the older side of changes among those that are lost, wherever it stood, and returns the others.
func rejoin(lost []*Entry, all []change) []*Entry {
	where := make(map[key]int)
	for i, c := range all {
		if c.was == nil {
			where[keyOf(c.is)] = i
		}
	}
	return slices.DeleteFunc(lost, func(e *Entry) bool {
		i, ok := where[keyOf(e)]
		if ok {
			all[i].was = e
			delete(where, keyOf(e))
		}
		return ok
	})
}

// ranksOf is the order of the roots of entries.
func ranksOf(entries []*Entry) map[string]int {
	ranks := make(map[string]int)
	last := ""
	for i, e := range entries {
		if i > 0 && e.Root == last {
			continue
		}
		last = e.Root
		if _, ok := ranks[last]; !ok {
			ranks[last] = len(ranks)
		}
	}
	return ranks
}

// order compares an older entry with a newer one by root, kind and path; a root that is no more comes first.
func order(ranks func() map[string]int, a, b *Entry) int {
	if a.Root == b.Root {
		return inOrder(a, b)
	}
	i, ok := ranks()[a.Root]
	if !ok {
		return -1
	}
	return cmp.Compare(i, ranks()[b.Root])
}
