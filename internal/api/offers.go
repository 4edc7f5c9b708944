package api

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"trainyard/internal/fleet"
)

// OfferPage is one page of what can be provisioned, the cheapest first, and with the first
// page what is not asked for now.
type OfferPage struct {
	Offers []fleet.Offer `json:"offers" doc:"offers that can be provisioned now"`
	Closed []Closing     `json:"closed" doc:"recently refused offers that are not being requested; first page only"`
	Next   string        `json:"next,omitempty"`
}

// Closing is something that is not asked for until some time, because it was refused.
type Closing struct {
	What   string    `json:"what"`
	Why    string    `json:"why"`
	Since  time.Time `json:"since"`
	Until  time.Time `json:"until"`
	Times  int       `json:"times" doc:"consecutive refusals"`
	Offers int       `json:"offers" doc:"number of offers affected"`
}

// OfferFilter says which offers are wanted. Empty fields do not filter.
type OfferFilter struct {
	GPU      string // kind: A100, A100:80GB
	Provider string
	Region   string
	Spot     *bool
	Page
}

func (f OfferFilter) query() url.Values {
	q := f.Page.query()
	set(q, "gpu", f.GPU)
	set(q, "provider", f.Provider)
	set(q, "region", f.Region)

	if f.Spot != nil {
		q.Set("spot", strconv.FormatBool(*f.Spot))
	}

	return q
}

// Offers returns one page of what can be provisioned, and of what is not asked for and why.
func (c *Client) Offers(ctx context.Context, f OfferFilter) (OfferPage, error) {
	return get[OfferPage](ctx, c, at("offers"), f.query())
}
