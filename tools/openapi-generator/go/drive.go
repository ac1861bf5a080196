// Command drive drives a running service by the Go that openapi-generator writes, and prints what
// it reads. The arguments are the addresses of the service, of a page and of a receiver of
// webhooks, and its secret.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"
	"time"

	recrawl "github.com/GIT_USER_ID/GIT_REPO_ID"
)

func read[T any](answer T, _ any, err error) T {
	if err != nil {
		log.Panic(err)
	}
	return answer
}

func main() {
	service, url, receiver, secret := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	configuration := recrawl.NewConfiguration()
	configuration.Servers = recrawl.ServerConfigurations{{URL: service}}
	api, all := recrawl.NewAPIClient(configuration), context.Background()

	first, second := recrawl.NewPage(url), recrawl.NewPage("no url")
	first.SetImportance(2)
	first.SetTags([]string{"news"})
	registered := read(api.PagesAPI.PostPages(all).Page([]recrawl.Page{*first, *second}).Execute())
	pageID := *registered.PageIds[0]
	asked := recrawl.NewLeaseBody()
	asked.SetWorker("generated")
	asked.SetCount(5)
	crawl := read(api.LeasesAPI.PostLeases(all).LeaseBody(*asked).Execute()).Items[0]
	crawled := recrawl.NewObservation()
	crawled.SetObservedAt(time.Now())
	crawled.SetLease(crawl.Lease)
	crawled.SetDigest("a")
	reported := read(
		api.EvidenceAPI.PostObservations(all).Observation([]recrawl.Observation{*crawled}).Execute())
	epoch := read(api.EpochsAPI.PostEpoch(all).WaitS(30).Execute())
	schedule := read(api.ScheduleAPI.GetSchedule(all).Limit(10).Execute())
	shown := read(api.PagesAPI.GetPage(all, pageID).Execute())
	byURL := read(api.PagesAPI.ListAllPages(all).Url(url).Execute())
	listed := read(api.PagesAPI.ListAllPages(all).Tag("news").Execute())
	patch := recrawl.NewPagePatchBody()
	patch.SetMaxCrawlRateNil()
	patch.SetImportance(3.5)
	patched := read(api.PagesAPI.PatchPage(all, pageID).PagePatchBody(*patch).Execute())
	copies := []recrawl.Copy{*recrawl.NewCopy(), *recrawl.NewCopy()}
	copies[0].SetPageId(pageID)
	copies[1].SetUrl("no url")
	fresh := read(api.PagesAPI.PostFreshness(all).Copy(copies).Execute())
	verdicts := []any{}
	for _, verdict := range fresh.Verdicts {
		if verdict == nil {
			verdicts = append(verdicts, nil)
		} else {
			verdicts = append(verdicts, verdict.GetPageId())
		}
	}
	host := read(api.HostsAPI.ListHosts(all).Limit(1).Execute()).Items[0]
	slower := recrawl.NewHostBody()
	slower.SetMaxConcurrency(3)
	slow := read(api.HostsAPI.PatchHost(all, host.Host).HostBody(*slower).Execute())
	wanted := recrawl.NewWebhookBody(receiver)
	wanted.SetSecret(secret)
	wanted.SetMaxItems(10)
	hook := read(api.WebhooksAPI.PostWebhook(all).WebhookBody(*wanted).Execute())
	tested := read(api.WebhooksAPI.TestWebhook(all, hook.Id).Execute())
	_, missing, _ := api.PagesAPI.GetPage(all, pageID+1).Execute()

	ids := []int64{}
	for _, page := range listed.PagesAnswer.Items {
		ids = append(ids, page.PageId)
	}
	var rate any
	if bound := patched.MaxCrawlRate.Get(); bound != nil {
		rate = *bound
	}
	printed, _ := json.Marshal(map[string]any{
		"page_ids": []int64{
			pageID, crawl.PageId, schedule.Items[0].PageId, shown.PageId, byURL.PageAnswer.PageId,
		},
		"none":           registered.PageIds[1],
		"listed":         ids,
		"leases_ended":   reported.LeasesEnded,
		"epoch":          []any{epoch.Status, epoch.GetNPages()},
		"max_crawl_rate": rate,
		"importance":     patched.Importance,
		"verdicts":       verdicts,
		"host":           []any{host.Host, slow.GetMaxConcurrency()},
		"tested":         tested.GetStatus(),
		"missing":        missing.StatusCode,
	})
	os.Stdout.Write(printed)
}
