"""The OpenAPI document of the application, which takes a tenth of a second to write."""

from service.api.app import create_app

DOCUMENT = create_app().openapi()
