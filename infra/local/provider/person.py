"""What a person does at the provider's pages: sign in, and say yes or no."""

from infra.local.browser import Browser, Page


def sign_in(browser: Browser, page: Page, username: str, password: str) -> Page:
    """From the login page on to what the person came for; a page without a password field is passed through."""
    if not any("password" in form.fields for form in page.forms):
        return page
    return browser.submit(page, page.form_with("password"), {"username": username, "password": password})


def consent(browser: Browser, page: Page, *, allow: bool = True, follow: bool = True) -> Page:
    """Answer the toolkit's consent page; with *follow* off the answer is the redirect back to the client, not taken."""
    form = page.form_with("allow")
    return browser.submit(page, form, button="allow" if allow else "", follow=follow)
