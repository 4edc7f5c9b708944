package cli

import "trainyard/internal/api"

// pageLimit is the most entries that the server gives at once.
const pageLimit = 500

// collect reads all pages of a list.
func collect[T any](read func(api.Page) (list []T, next string, err error)) ([]T, error) {
	all := []T{}

	for page := (api.Page{Limit: pageLimit}); ; {
		list, next, err := read(page)
		if err != nil {
			return nil, err
		}

		all = append(all, list...)
		if next == "" {
			return all, nil
		}

		page.Cursor = next
	}
}
