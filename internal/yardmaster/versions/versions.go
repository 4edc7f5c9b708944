// Package versions holds a map from numbers to values of which earlier versions stay as they were.
//
// The yardmaster keeps in it what questions ask about jobs. Taking a version costs next to nothing, and the next
// change copies the small part of the map that it touches, so that a version can be read beside the loop while the
// yard goes on.
package versions

import (
	"cmp"
	"slices"
)

// A block has width pages, and a page width values: numbers that follow each other are close together.
const (
	bits  = 6
	width = 1 << bits
	mask  = width - 1
)

// Map maps numbers to values, which must not be changed once they are in it. It is not safe for concurrent use.
type Map[V any] struct {
	blocks []*block[V] // by their first number
	edit   uint64      // grows with each version
	shared bool        // the list of blocks is that of a version
}

// block holds the values of width*width numbers.
type block[V any] struct {
	key   uint64 // the upper bits of its numbers
	edit  uint64 // in which it was made; it is copied before it is changed in a later one
	count int    // pages
	pages [width]*page[V]
}

type page[V any] struct {
	edit   uint64
	count  int // values
	values [width]*V
}

// Version is a map at one moment. It never changes and may be read by any number of goroutines.
type Version[V any] struct{ blocks []*block[V] }

// Version returns the map as it is now.
func (m *Map[V]) Version() Version[V] {
	m.edit++
	m.shared = true

	return Version[V]{m.blocks}
}

// Get returns the value of a number, nil if it has none.
func (v Version[V]) Get(number uint64) *V {
	at, found := find(v.blocks, number)
	if !found {
		return nil
	}

	if p := v.blocks[at].pages[number>>bits&mask]; p != nil {
		return p.values[number&mask]
	}

	return nil
}

// All yields the values in the order of their numbers.
func (v Version[V]) All(yield func(number uint64, value *V) bool) {
	for _, b := range v.blocks {
		for i, p := range b.pages {
			if p == nil {
				continue
			}

			for k, value := range p.values {
				if value != nil && !yield(b.key<<(2*bits)|uint64(i)<<bits|uint64(k), value) {
					return
				}
			}
		}
	}
}

func find[V any](blocks []*block[V], number uint64) (int, bool) {
	return slices.BinarySearchFunc(blocks, number>>(2*bits), func(b *block[V], key uint64) int {
		return cmp.Compare(b.key, key)
	})
}

// Set gives a number a value; nil removes the one that it has.
func (m *Map[V]) Set(number uint64, value *V) {
	old := Version[V]{m.blocks}.Get(number)
	if old == value {
		return
	}

	b := m.block(number)
	p := m.page(b, number)

	switch {
	case old == nil:
		p.count++
	case value == nil:
		p.count--
	}

	p.values[number&mask] = value
	if p.count > 0 {
		return
	}

	b.pages[number>>bits&mask] = nil
	b.count--

	if b.count == 0 {
		at, _ := find(m.blocks, number)
		m.blocks = slices.Delete(m.blocks, at, at+1)
	}
}

// block returns the block of a number, which may be changed, and creates it if it is missing.
func (m *Map[V]) block(number uint64) *block[V] {
	at, found := find(m.blocks, number)
	if found && m.blocks[at].edit == m.edit {
		return m.blocks[at]
	}

	if m.shared {
		m.blocks, m.shared = slices.Clone(m.blocks), false
	}

	if !found {
		m.blocks = slices.Insert(m.blocks, at, &block[V]{key: number >> (2 * bits), edit: m.edit})
		return m.blocks[at]
	}

	own := *m.blocks[at]
	own.edit = m.edit
	m.blocks[at] = &own

	return &own
}

// page returns the page of a number, which may be changed, and creates it if it is missing.
func (m *Map[V]) page(b *block[V], number uint64) *page[V] {
	p := &b.pages[number>>bits&mask]

	switch {
	case *p == nil:
		*p = &page[V]{edit: m.edit}
		b.count++
	case (*p).edit != m.edit:
		own := **p
		own.edit = m.edit
		*p = &own
	}

	return *p
}
