"""The platform's own pages."""

from __future__ import annotations

from django.contrib import admin

from example_project.school.models import Booking, Lesson, Letter, Upload


@admin.register(Lesson)
class LessonAdmin(admin.ModelAdmin):
    list_display = ("title", "instructor", "starts_at")


@admin.register(Booking)
class BookingAdmin(admin.ModelAdmin):
    list_display = ("email", "lesson", "reminder")


@admin.register(Letter)
class LetterAdmin(admin.ModelAdmin):
    list_display = ("subject", "recipient", "sent_at")


admin.site.register(Upload)
